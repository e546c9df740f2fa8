// Package crdtest helps to test a CustomResourceDefinition. It reads the CRD from a file and
// validates objects as an API server does.
package crdtest

import (
	"os"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"github.com/lanyard-dev/lanyard/internal/admission"
	"github.com/lanyard-dev/lanyard/internal/must"
)

// Read decodes the file of a CRD, see [admission.ReadCRD].
func Read(tb testing.TB, file string) *apiextensions.CustomResourceDefinition {
	tb.Helper()
	data, err := os.ReadFile(file) //nolint:gosec // a test names its file
	must.Succeed(tb, err)
	crd, err := admission.ReadCRD(data)
	must.Succeed(tb, err)
	return crd
}

// New returns an Admission, which validates objects with the CRD in the file.
func New(tb testing.TB, file string) *admission.Admission {
	tb.Helper()
	a, err := admission.New(Read(tb, file))
	must.Succeed(tb, err)
	return a
}
