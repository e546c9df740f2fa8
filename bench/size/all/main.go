// Command all is a program with Lanyard's library and the providers of all clouds. Package bench
// measures its size.
package main

import (
	"os"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/bench/size/controller"
)

func main() { controller.Main(byName(os.Args[4])) }

// byName returns the provider with this name. The program in size/flux chooses its provider by name
// too.
func byName(name string) (auth.Provider, error) {
	clouds, err := providers.New(providers.Config{Env: os.Getenv})
	if err != nil {
		return nil, err
	}
	return clouds.ByName(name)
}
