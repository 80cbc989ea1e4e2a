module preempted

go 1.26
