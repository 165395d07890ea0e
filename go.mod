module saltern

go 1.26
