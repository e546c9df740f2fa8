// Command aws is a program with Lanyard's library and the provider of one cloud. Package bench
// measures its size.
package main

import (
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/bench/size/controller"
)

func main() { controller.Main(aws.NewProvider(aws.Config{})) }
