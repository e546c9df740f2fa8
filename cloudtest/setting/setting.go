// Package setting has the errors of changes to the local cloud's settings. There are two: an
// [*Error] names the field of an invalid setting, and an error that wraps [ErrNotFound] says that
// what is to be changed does not exist.
package setting

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrNotFound is wrapped by errors about what does not exist: an account, tenant or project, or
// something in it.
var ErrNotFound = errors.New("not found")

// Error says that a setting is invalid. Nothing was changed.
type Error struct {
	// Field is the path of the field at fault, as in the JSON that was given:
	// "aws.accounts[0].roles[1].trustPolicy" in a whole configuration, "trustPolicy" in a role.
	Field string
	// Err says what is wrong and what is allowed.
	Err error
}

// Error names the field and the fix.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Invalid is the [*Error] of a field, in the words of [fmt.Errorf].
func Invalid(field, format string, args ...any) error {
	return &Error{Field: field, Err: fmt.Errorf(format, args...)}
}

// In puts the path of the parent in front of an error's field. An error that names no field becomes
// one about the parent; nil stays nil.
func In(parent string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Field: parent + "." + e.Field, Err: e.Err}
	}
	return &Error{Field: parent, Err: err}
}

// At is the path of a list's member.
func At(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// Of is the path of a map's value.
func Of(table, key string) string { return table + "[" + strconv.Quote(key) + "]" }

// Fill puts each member of a list. Two members with one name are an error, as is an error of put;
// both name the member's path. Kind says what members are.
func Fill[T any](list, kind string, members []T, name func(T) string, put func(T) error) error {
	seen := map[string]bool{}
	for i, m := range members {
		if seen[name(m)] {
			return Invalid(At(list, i), "%s %q is given twice", kind, name(m))
		}
		seen[name(m)] = true
		if err := put(m); err != nil {
			return In(At(list, i), err)
		}
	}
	return nil
}

// NotFound says that nothing of a kind has that name.
func NotFound(kind, name string) error { return fmt.Errorf("%s %q: %w", kind, name, ErrNotFound) }

// Remove deletes what is known under a key, which must be there.
func Remove[K comparable, V any](from map[K]V, key K, kind string) error {
	if _, ok := from[key]; !ok {
		return NotFound(kind, fmt.Sprint(key))
	}
	delete(from, key)
	return nil
}
