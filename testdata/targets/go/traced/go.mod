module traced

go 1.26
