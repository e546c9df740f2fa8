package program

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Size is a flag's value: a number of bytes in Kubernetes' notation.
type Size int64

// Set reads a quantity such as 8Gi.
func (s *Size) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is not a number of bytes, such as 8Gi", text)
	}
	n, exact := q.AsInt64()
	if !exact || n < 0 {
		return fmt.Errorf("%q is not a whole number of bytes, or is negative", text)
	}
	*s = Size(n)
	return nil
}

// String returns the quantity in Kubernetes' notation.
func (s *Size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }

// Type returns the name that the help shows for the flag's value.
func (s *Size) Type() string { return "bytes" }
