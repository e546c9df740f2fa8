// Command azure is the library with one cloud.
package main

import (
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/bench/size/controller"
)

func main() { controller.Main(azure.NewProvider(azure.Config{})) }
