package setting_test

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/lanyard-dev/lanyard/cloudtest/setting"
)

// TestPath checks that an error has the path of its field in the given JSON, at any depth.
func TestPath(t *testing.T) {
	deep := setting.Invalid(setting.Of("policies", `a"b`), "%w", io.EOF)
	for want, err := range map[string]error{
		`policies["a\"b"]: EOF`:                           deep,
		`aws.accounts[0].roles[12].policies["a\"b"]: EOF`: setting.In("aws", setting.In(setting.At("accounts", 0), setting.In(setting.At("roles", 12), deep))),
		"issuers[1]: EOF":                                 setting.In(setting.At("issuers", 1), io.EOF),
	} {
		if err.Error() != want || !errors.Is(err, io.EOF) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, ok := errors.AsType[*setting.Error](err); !ok {
			t.Errorf("%T", err)
		}
	}
	if err := setting.In("aws", nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestRemove(t *testing.T) {
	roles := map[string]int{"a": 1}
	if err := setting.Remove(roles, "a", "role"); err != nil || len(roles) != 0 {
		t.Error(err, roles)
	}
	err := setting.Remove(roles, "a", "role")
	if !errors.Is(err, setting.ErrNotFound) || err.Error() != `role "a": not found` {
		t.Error(err)
	}
}

// TestFill checks two errors. If a member of the list is invalid, the error has the member's path,
// such as roles[1].name. If two members have the same name, the second one is refused.
func TestFill(t *testing.T) {
	fill := func(names ...string) (put []string, err error) {
		err = setting.Fill("roles", "role", names, func(s string) string { return s }, func(s string) error {
			if s == "" {
				return setting.Invalid("name", "is required")
			}
			put = append(put, s)
			return nil
		})
		return put, err
	}
	if put, err := fill("a", "b"); err != nil || len(put) != 2 {
		t.Errorf("%v %v", put, err)
	}
	for want, names := range map[string][]string{
		`roles[2]: role "a" is given twice`: {"a", "b", "a", "c"},
		"roles[1].name: is required":        {"a", "", "c"},
	} {
		if put, err := fill(names...); err == nil || err.Error() != want || slices.Contains(put, "c") {
			t.Errorf("%q: %v %v", names, put, err)
		}
	}
}
