package memory

import (
	"reflect"
	"strings"
	"time"
)

// size estimates how many bytes of memory a value refers to: its texts, lists and maps, and the
// values that its pointers lead to. The fixed size of the value's own type does not count.
func size(v reflect.Value) int {
	total := 0
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			total = int(v.Elem().Type().Size()) + size(v.Elem())
		}
	case reflect.Slice:
		total = v.Cap() * int(v.Type().Elem().Size())
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return total
		}
		for i := range v.Len() {
			total += size(v.Index(i))
		}
	case reflect.Map:
		// On average, half of the slots of a map are empty.
		total = 2 * v.Len() * int(v.Type().Key().Size()+v.Type().Elem().Size())
		for entries := v.MapRange(); entries.Next(); {
			total += size(entries.Key()) + size(entries.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0 // a time points only to its location, and all times share one location
		}
		for i := range v.NumField() { //nolint:modernize // Fields would allocate memory for each field
			total += size(v.Field(i))
		}
	default: // numbers and booleans point to no other memory
	}
	return total
}

// largest returns the path of the field that makes the value v too large. The argument path is the
// path of v itself. If one field takes more than half of v's memory, largest searches inside this
// field.
func largest(v reflect.Value, path string) string {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return path
	}
	whole := size(v)
	for i := range v.NumField() {
		if size(v.Field(i)) <= whole/2 {
			continue
		}
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch name {
		case "-": // v has no schema, for example a RawExtension, so the path ends at v
			return path
		case "":
			return largest(v.Field(i), path) // in JSON, an inlined struct has no name of its own
		default:
			return largest(v.Field(i), path+"."+name)
		}
	}
	return path
}
