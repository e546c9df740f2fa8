package cloudtest_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// changes are the methods by which a cloud is changed, by name.
func changes(of any) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	v := reflect.ValueOf(of)
	for i := range v.NumMethod() {
		name := v.Type().Method(i).Name
		for _, verb := range []string{"Add", "Put", "Set", "Delete"} {
			if strings.HasPrefix(name, verb) {
				out[name] = v.Method(i)
			}
		}
	}
	return out
}

// TestEveryChangeSaysWhatIsWrong: whatever changes a cloud refuses what is empty, and in one of the two ways that the package's documentation promises.
func TestEveryChangeSaysWhatIsWrong(t *testing.T) {
	c, err := cloudtest.New(cloudtest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for cloud, part := range map[string]any{"AWS": c.AWS(), "Azure": c.Azure(), "GCP": c.GCP()} {
		all := changes(part)
		if len(all) < 9 {
			t.Errorf("%s has %d changes", cloud, len(all))
		}
		for name, method := range all {
			if method.Type().NumOut() == 0 {
				continue // it cannot be refused
			}
			args := make([]reflect.Value, method.Type().NumIn())
			for i := range args {
				args[i] = reflect.Zero(method.Type().In(i))
			}
			err, _ := reflect.TypeAssert[error](method.Call(args)[0])
			refused, named := errors.AsType[*setting.Error](err)
			if named == errors.Is(err, setting.ErrNotFound) || (named && refused.Field == "") {
				t.Errorf("%s().%s: %v", cloud, name, err)
			}
		}
	}
}
