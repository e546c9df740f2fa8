// Command aws is the library with one cloud.
package main

import (
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/bench/size/controller"
)

func main() { controller.Main(aws.NewProvider(aws.Config{})) }
