package memory

import (
	"reflect"
	"strings"
	"time"
)

// size estimates the memory that a value takes in addition to its own fields, in bytes: texts,
// lists, maps, and what pointers lead to.
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
		// The slots of a map are half empty on average.
		total = 2 * v.Len() * int(v.Type().Key().Size()+v.Type().Elem().Size())
		for entries := v.MapRange(); entries.Next(); {
			total += size(entries.Key()) + size(entries.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0 // all times share their location
		}
		for i := range v.NumField() {
			total += size(v.Field(i))
		}
	default: // numbers and truth values have no memory of their own
	}
	return total
}

// largest returns the path of the field that makes a value too large. The argument path is the path
// of the value. As long as one field takes more than half of the value's memory, largest looks
// into this field.
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
		case "-": // the content of a field without a schema
			return path
		case "":
			return largest(v.Field(i), path) // an inlined struct has no name
		default:
			return largest(v.Field(i), path+"."+name)
		}
	}
	return path
}
