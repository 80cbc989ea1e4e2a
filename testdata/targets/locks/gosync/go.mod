module gosync

go 1.26
