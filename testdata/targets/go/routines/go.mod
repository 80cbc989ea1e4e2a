module routines

go 1.26
