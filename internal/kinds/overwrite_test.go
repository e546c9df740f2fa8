package kinds_test

import "reflect"

// overwriteAll zeroes the data behind an object's pointers and slices, and empties its maps. So a
// test can see whether an earlier copy of the object shares data with it.
func overwriteAll(object any) { overwrite(reflect.ValueOf(object).Elem()) }

func overwrite(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			overwrite(v.Elem())
			v.Elem().SetZero()
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				overwrite(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			overwrite(v.Index(i))
			v.Index(i).SetZero()
		}
	case reflect.Map:
		v.Clear()
	default:
	}
}
