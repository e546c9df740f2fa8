package controllertest

import (
	"context"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/internal/controller/object"
)

// Remembering returns a client that reads through c. The client reduces each object of Lanyard's
// kinds with [object.Remember], as a manager's cache does.
func Remembering(c client.Client) client.Client { return remembering{c} }

type remembering struct{ client.Client }

// Get implements client.Reader.
func (r remembering) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := r.Client.Get(ctx, key, o, options...); err != nil {
		return err
	}
	return remember(o)
}

// List implements client.Reader.
func (r remembering) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := r.Client.List(ctx, list, options...); err != nil {
		return err
	}
	return apimeta.EachListItem(list, remember)
}

func remember(o runtime.Object) error {
	if _, ours := o.(object.Object); !ours {
		return nil
	}
	_, err := object.Remember(o)
	return err
}
