// Command gcp is the library with one cloud.
package main

import (
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/bench/size/controller"
)

func main() { controller.Main(gcp.NewProvider(gcp.Config{})) }
