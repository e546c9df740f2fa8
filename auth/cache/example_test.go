package cache_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/cache"
)

// A program makes one cache, and gives it to each call as an option. GetToken reads and fills the
// cache.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tokens := cache.New(cache.Options{})
	go func() { _ = tokens.Run(ctx) }() // removes expired tokens
	// A controller also makes these calls, which this example leaves out:
	//   - accounts.Subscribe(tokens.Invalidate), to drop the tokens of accounts that change
	//   - metrics.Registry.Register(tokens), to publish the cache's metrics

	option := auth.WithCache(tokens, auth.InvolvedObject{Kind: "Thing", Namespace: "tenant-a", Name: "my-thing"})
	fmt.Println(option != nil, tokens.Len())
	// Output: true 0
}

// GetToken uses the cache in this way. One exchange serves all calls with one key, until the
// subject changes.
func ExampleCache_Fetch() {
	tokens := cache.New(cache.Options{})
	subject, err := auth.ServiceAccount("tenant-a", "reader")
	if err != nil {
		fmt.Println(err)
		return
	}
	key := auth.Key{Provider: "aws", Subject: subject, UID: "7c1f"}
	exchange := func(context.Context) (auth.Fetched, error) {
		fmt.Println("an exchange")
		token := &auth.RegistryCredentials{Username: "AWS", ExpiresAt: time.Now().Add(time.Hour)}
		return auth.Fetched{Token: token, Key: key}, nil
	}
	for range 2 {
		if _, err := tokens.Fetch(context.Background(), key, auth.FetchOptions{}, exchange); err != nil {
			fmt.Println(err)
		}
	}
	_, hit := tokens.Get(key, 0, auth.InvolvedObject{})
	fmt.Println("kept:", hit)

	tokens.Invalidate(subject)
	_, hit = tokens.Get(key, 0, auth.InvolvedObject{})
	fmt.Println("kept after a change of the account:", hit)
	// Output:
	// an exchange
	// kept: true
	// kept after a change of the account: false
}
