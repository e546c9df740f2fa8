// Command core is a program with Lanyard's library and without a provider. Package bench measures
// its size.
package main

import "github.com/lanyard-dev/lanyard/bench/size/controller"

func main() { controller.End(controller.Run()) }
