// Command all is the library with every cloud.
package main

import (
	"errors"

	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/azure"
	"github.com/lanyard-dev/lanyard/auth/gcp"

	"github.com/lanyard-dev/lanyard/bench/size/controller"
)

func main() {
	a, err1 := aws.NewProvider(aws.Config{})
	b, err2 := azure.NewProvider(azure.Config{})
	c, err3 := gcp.NewProvider(gcp.Config{})
	err := errors.Join(err1, err2, err3)
	if err == nil {
		err = controller.Run(a, b, c)
	}
	controller.End(err)
}
