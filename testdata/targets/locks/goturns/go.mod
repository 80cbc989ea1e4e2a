module goturns

go 1.26
