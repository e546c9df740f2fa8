// Package setting defines the errors that changes to the local cloud's settings return. An [*Error]
// names the field of an invalid setting. An error that wraps [ErrNotFound] says that the object to
// change does not exist.
package setting

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
)

// ErrNotFound is wrapped by errors about objects that do not exist: an account, tenant or project,
// or an object in it.
var ErrNotFound = errors.New("not found")

// Error says that a setting is invalid. No setting was changed.
type Error struct {
	// Field is the path of the invalid field, as in the JSON that was given:
	// "aws.accounts[0].roles[1].trustPolicy" in a whole configuration, "trustPolicy" in a role.
	Field string
	// Err describes the problem and the allowed values.
	Err error
}

// Error returns the field and the problem.
func (e *Error) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the problem.
func (e *Error) Unwrap() error { return e.Err }

// Invalid returns the [*Error] of a field. Format and args are as for [fmt.Errorf].
func Invalid(field, format string, args ...any) error {
	return &Error{Field: field, Err: fmt.Errorf(format, args...)}
}

// In adds the path of a parent to err. An [*Error] gets the parent's path in front of its field.
// Any other error becomes an [*Error] whose field is the parent. The result is nil if err is nil.
func In(parent string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Field: parent + "." + e.Field, Err: e.Err}
	}
	return &Error{Field: parent, Err: err}
}

// At returns the path of an element of a list, such as roles[1].
func At(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// Of returns the path of the value that a map has for a key, such as policies["read"]. The argument
// table is the path of the map.
func Of(table, key string) string { return table + "[" + strconv.Quote(key) + "]" }

// Fill passes each member of a list to a function. It fails if two members have the same name, or
// if the function fails. The error has the member's path. If a name occurs twice, the error also
// has the given kind, such as "role".
func Fill[T any](list, kind string, members []T, name func(T) string, put func(T) error) error {
	seen := map[string]bool{}
	return Each(list, members, func(m T) error {
		if seen[name(m)] {
			return fmt.Errorf("%s %q is given twice", kind, name(m))
		}
		seen[name(m)] = true
		return put(m)
	})
}

// Each calls a function with each member of a list, and stops at the first error. The returned
// error has the member's path.
func Each[T any](list string, members []T, put func(T) error) error {
	for i, m := range members {
		if err := put(m); err != nil {
			return In(At(list, i), err)
		}
	}
	return nil
}

// Change passes the named object to a function, under the lock. It fails if there is no such
// object.
func Change[V any](lock sync.Locker, objects map[string]*V, kind, name string, do func(*V) error) error {
	lock.Lock()
	defer lock.Unlock()
	object := objects[name]
	if object == nil {
		return NotFound(kind, name)
	}
	return do(object)
}

// NotFound returns the error for a missing object, which wraps [ErrNotFound].
func NotFound(kind, name string) error { return fmt.Errorf("%s %q: %w", kind, name, ErrNotFound) }

// Remove deletes the entry of a key. It fails if there is no such entry.
func Remove[K comparable, V any](from map[K]V, key K, kind string) error {
	if _, ok := from[key]; !ok {
		return NotFound(kind, fmt.Sprint(key))
	}
	delete(from, key)
	return nil
}
