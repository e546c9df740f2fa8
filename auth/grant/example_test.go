package grant_test

import (
	"encoding/json"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth/grant"
)

// Decide for three namespaces whether an allowedNamespaces block admits them.
func ExampleNamespaces_Decide() {
	var allowed grant.Namespaces
	if err := json.Unmarshal([]byte(`{"list": ["tenant-a"], "selector": {"matchLabels": {"cloud": "yes"}}}`), &allowed); err != nil {
		fmt.Println(err)
	}
	fmt.Println(allowed.Decide("tenant-a", nil).Allowed)
	fmt.Println(allowed.Decide("tenant-b", map[string]string{"cloud": "yes"}).Allowed)
	fmt.Println(allowed.Decide("tenant-c", nil).Allowed)
	// Output:
	// true
	// true
	// false
}

// Parse values of a flag. An empty value admits nobody, and only {} admits everybody.
func ExampleParseFlag() {
	for _, value := range []string{"", "{}", `{"list": []}`, "*"} {
		allowed, err := grant.ParseFlag(value)
		fmt.Println(allowed.Decide("tenant-a", nil).Allowed, err != nil)
	}
	// Output:
	// false false
	// true false
	// false false
	// false true
}
