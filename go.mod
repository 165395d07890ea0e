module saltern

go 1.26

require (
	github.com/klauspost/compress v1.20.4
	github.com/tinylib/msgp v1.6.5
)

require (
	github.com/philhofer/fwd v1.2.0 // indirect
	golang.org/x/mod v0.18.0 // indirect
	golang.org/x/tools v0.22.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
