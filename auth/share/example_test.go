package share_test

import (
	"context"
	"fmt"

	"github.com/lanyard-dev/lanyard/auth/share"
)

func Example() {
	signatures := share.New(share.Limits{Places: 4, Waiting: 100, WaitingPerTenant: 20})
	sign := func(ctx context.Context, namespace string) error {
		if err := signatures.Enter(ctx, namespace); err != nil {
			return err
		}
		defer signatures.Leave(namespace)
		fmt.Println("a signature for", namespace)
		return nil
	}
	if err := sign(context.Background(), "tenant-a"); err != nil {
		fmt.Println(err)
	}
	// Output: a signature for tenant-a
}
