// Package kind adds a kind of objects that is not part of Lanyard. The package's test checks that a
// new kind needs only:
//   - an API type (package v1alpha1)
//   - an entry in the table of kinds (this package)
//   - a reconciler (package taglist)
package kind

import (
	toolkitv1 "github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/test/kind/v1alpha1"
)

// TagList returns the entry of the kind TagList.
func TagList() kinds.Kind {
	return kinds.Acting(kinds.Kind{
		GroupVersionKind: toolkitv1.GroupVersion().WithKind("TagList"),
		Plural:           "taglists", Short: "ltl",
		New:     func() kinds.Resource { return &v1alpha1.TagList{} },
		NewList: func() kinds.List { return &v1alpha1.TagListList{} },
		Server:  kinds.Registry, AddressField: "spec.url", Success: "Pulled",
	}, func(o kinds.Resource) string { return o.(*v1alpha1.TagList).Spec.URL })
}
