package kustomize

import (
	"fmt"

	"github.com/lanyard-dev/lanyard/internal/memory/reserve"
)

// counter counts objects in JSON, up to the limits. Both the child and its parent count, since the
// parent must not trust the child.
type counter struct {
	limits                 Limits
	objects, bytes, values int
}

// add counts one object, or says which limit the object exceeds.
func (c *counter) add(object []byte) *Error {
	const split = "split the manifests between several Kustomizations"
	c.objects++
	c.bytes += len(object)
	c.values += reserve.Values(object)
	switch {
	case len(object) > c.limits.ObjectBytes:
		return tooLarge("make the object smaller: the API server would refuse it",
			"the object has %d bytes, and %d are allowed", len(object), c.limits.ObjectBytes)
	case c.objects > c.limits.Objects:
		return tooLarge(split, "the build has more than %d objects", c.limits.Objects)
	case c.bytes > c.limits.Bytes:
		return tooLarge(split, "the objects have more than %d bytes", c.limits.Bytes)
	case c.values > c.limits.Values:
		return tooLarge(split, "the objects have more than %d values", c.limits.Values)
	}
	return nil
}

// tooLarge returns an error about a limit.
func tooLarge(fix, format string, arguments ...any) *Error {
	return &Error{Reason: ReasonTooLarge, Message: fmt.Sprintf(format, arguments...), Fix: fix}
}
