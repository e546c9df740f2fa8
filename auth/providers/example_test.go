package providers_test

import (
	"fmt"
	"log"
	"os"

	"github.com/lanyard-dev/lanyard/auth/providers"
)

// Objects choose a cloud by its name. There is no default.
func ExampleSet_ByName() {
	clouds, err := providers.New(providers.Config{Env: os.Getenv})
	if err != nil {
		log.Fatal(err)
	}
	defer clouds.Close()
	for _, name := range []string{"gcp", "openstack", ""} {
		// The name is usually spec.provider of an object.
		provider, err := clouds.ByName(name)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(provider.GetName())
	}
	// Output:
	// gcp
	// subject: there is no provider "openstack"; name one of aws, azure, gcp
	// subject: there is no provider ""; name one of aws, azure, gcp
}
