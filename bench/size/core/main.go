// Command core is the library without a cloud.
package main

import "github.com/lanyard-dev/lanyard/bench/size/controller"

func main() { controller.End(controller.Run()) }
