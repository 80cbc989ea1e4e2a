module slow

go 1.26
