module github.com/lanyard-dev/lanyard/cloudtest

go 1.26.0

require github.com/go-jose/go-jose/v4 v4.1.8

require github.com/google/go-cmp v0.7.0 // indirect
