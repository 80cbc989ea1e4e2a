module shares

go 1.26
