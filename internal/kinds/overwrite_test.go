package kinds_test

import "reflect"

// overwriteAll sets everything that an object refers to by pointers, slices and maps to zero values.
// What was copied from the object before stays as it was; what was shared with the object does not.
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
