// Writes the fields of a KubeletConfiguration and their types as JSON; run by python -m docs.fields --kubelet 0.37.
//
// A type is "bool", "string", "duration", "quantity", an integer or float by its size ("int32"), [type] for a list,
// {"*": type} for a map, and {"field": type} for an object.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Types that decode themselves, by what they decode.
var known = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":        "duration",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":        "quantity",
	"k8s.io/apimachinery/pkg/api/resource.QuantityValue":   "quantity",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":            "string",
	"k8s.io/component-base/logs/api/v1.TimeOrMetaDuration": "duration or integer",
	"k8s.io/component-base/logs/api/v1.VerbosityLevel":     "uint32",
}

var unmarshaler = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()

func typeOf(t reflect.Type, path string) any {
	name := t.PkgPath() + "." + t.Name()
	if kind, ok := known[name]; ok {
		return kind
	}
	if t.Kind() != reflect.Pointer && reflect.PointerTo(t).Implements(unmarshaler) {
		panic(fmt.Sprintf("%s: %s decodes itself: add what it decodes to known", path, name))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeOf(t.Elem(), path)
	case reflect.Slice:
		return []any{typeOf(t.Elem(), path+"[]")}
	case reflect.Map:
		return map[string]any{"*": typeOf(t.Elem(), path+"{}")}
	case reflect.Struct:
		fields := map[string]any{}
		addFields(fields, t, path)
		return fields
	case reflect.Bool, reflect.String, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Float64:
		return t.Kind().String()
	default:
		panic(fmt.Sprintf("%s: %s is not supported", path, t))
	}
}

func addFields(fields map[string]any, t reflect.Type, path string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && field.Anonymous:
			addFields(fields, field.Type, path)
		case name == "":
			panic(fmt.Sprintf("%s.%s has no name in JSON", path, field.Name))
		default:
			fields[name] = typeOf(field.Type, path+"."+name)
		}
	}
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	if err := encoder.Encode(typeOf(reflect.TypeOf(v1beta1.KubeletConfiguration{}), "")); err != nil {
		panic(err)
	}
}
