package cloudtest_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/must"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// changes returns the functions that change a cloud, by name. For a cloud, they are its methods.
// For the Admin of a cloud, they are its fields.
func changes(of any) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	add := func(name string, f reflect.Value) {
		for _, verb := range []string{"Add", "Put", "Set", "Delete"} {
			if strings.HasPrefix(name, verb) {
				out[name] = f
			}
		}
	}
	v := reflect.ValueOf(of)
	for i := range v.NumMethod() {
		add(v.Type().Method(i).Name, v.Method(i))
	}
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			add(v.Type().Field(i).Name, v.Field(i))
		}
	}
	return out
}

// TestEveryChangeSaysWhatIsWrong passes zero values to each method that changes a cloud and can
// fail. The error must be a [*setting.Error] with a field, or wrap [setting.ErrNotFound].
func TestEveryChangeSaysWhatIsWrong(t *testing.T) {
	c, err := cloudtest.New(cloudtest.Config{})
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	for cloud, part := range map[string]any{"AWS": c.AWS(), "Azure": c.Azure(), "GCP": c.GCP(), "Alibaba": c.Alibaba()} {
		all := changes(part)
		if len(all) < 5 {
			t.Errorf("%s has %d changes", cloud, len(all))
		}
		for name, method := range all {
			if method.Type().NumOut() == 0 {
				continue // the method cannot fail
			}
			err := callEmpty(method)
			refused, named := errors.AsType[*setting.Error](err)
			if named == errors.Is(err, setting.ErrNotFound) || (named && refused.Field == "") {
				t.Errorf("%s().%s: %v", cloud, name, err)
			}
		}
	}
}

// callEmpty calls a method with zero values and returns its error. A given context becomes the
// first argument.
func callEmpty(method reflect.Value, ctx ...reflect.Value) error {
	args := ctx
	for i := len(ctx); i < method.Type().NumIn(); i++ {
		args = append(args, reflect.Zero(method.Type().In(i)))
	}
	err, _ := reflect.TypeAssert[error](method.Call(args)[0])
	return err
}

// TestAdminIsTheCloud: for each method that changes a cloud, the cloud's Admin has a function with
// the same name, parameters and errors.
func TestAdminIsTheCloud(t *testing.T) {
	c, err := cloudtest.New(cloudtest.Config{})
	must.Succeed(t, err)
	defer func() { _ = c.Close() }()
	must.Succeed(t, c.Start(t.Context()))
	admin := &cloudtest.Admin{URL: c.ProxyURL()}
	ctx := reflect.ValueOf(t.Context())
	for cloud, parts := range map[string][2]any{"AWS": {c.AWS(), admin.AWS()}, "Azure": {c.Azure(), admin.Azure()}, "GCP": {c.GCP(), admin.GCP()}, "Alibaba": {c.Alibaba(), admin.Alibaba()}} {
		here, there := changes(parts[0]), changes(parts[1])
		if len(here) != len(there) {
			t.Errorf("%s has %d changes here, %d there", cloud, len(here), len(there))
		}
		for name, method := range here {
			other, ok := there[name]
			if !ok {
				t.Errorf("%s().%s is not there", cloud, name)
				continue
			}
			in := append([]reflect.Type{reflect.TypeFor[context.Context]()}, slices.Collect(method.Type().Ins())...)
			if !slices.Equal(in, slices.Collect(other.Type().Ins())) {
				t.Errorf("%s().%s takes %s there", cloud, name, other.Type())
			}
			if method.Type().NumOut() == 0 {
				continue // the method cannot fail
			}
			want, got := callEmpty(method), callEmpty(other, ctx)
			if errors.Is(want, setting.ErrNotFound) != errors.Is(got, setting.ErrNotFound) {
				t.Errorf("%s().%s: %v here, %v there", cloud, name, want, got)
			}
			if refused, ok := errors.AsType[*setting.Error](want); ok {
				if e, ok := errors.AsType[*setting.Error](got); !ok || e.Error() != refused.Error() {
					t.Errorf("%s().%s: %v here, %v there", cloud, name, want, got)
				}
			}
		}
	}
}
