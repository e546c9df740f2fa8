// Command gcp is a program with Lanyard's library and the provider of one cloud. Package bench
// measures its size.
package main

import (
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/bench/size/controller"
)

func main() { controller.Main(gcp.NewProvider(gcp.Config{})) }
