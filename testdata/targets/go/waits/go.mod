module waits

go 1.26
