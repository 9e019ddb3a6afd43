// What kstatus and Argo CD say of objects. Standard input is JSON with "objects", and "scripts": by "group_Kind" the
// Lua health checks that an installation of Argo CD adds in argocd-cm, which come before its own. Standard output is
// a JSON list with a verdict for each object.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	customizations "github.com/argoproj/argo-cd/v3/resource_customizations"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type input struct {
	Objects []map[string]any  `json:"objects"`
	Scripts map[string]string `json:"scripts"`
}

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type verdict struct {
	Kstatus health `json:"kstatus"`
	Argo    health `json:"argo"` // without a status: Argo CD has no health check for the kind
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var given input
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return fmt.Errorf("reading standard input: %w", err)
	}
	verdicts := make([]verdict, 0, len(given.Objects))
	for _, fields := range given.Objects {
		object, err := parsed(fields)
		if err != nil {
			return err
		}
		computed, err := status.Compute(object)
		if err != nil {
			return fmt.Errorf("kstatus of %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		argo, err := argoHealth(object, given.Scripts)
		if err != nil {
			return fmt.Errorf("Argo CD's health of %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		verdicts = append(verdicts, verdict{
			Kstatus: health{Status: computed.Status.String(), Message: computed.Message},
			Argo:    argo,
		})
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}

// parsed has whole numbers as int64, as kstatus expects them.
func parsed(fields map[string]any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(text)
}

// argoHealth is the health that Argo CD shows. An object that is being deleted is Progressing whatever its check says
// (GetResourceHealth in Argo CD's gitops-engine/pkg/health).
func argoHealth(object *unstructured.Unstructured, added map[string]string) (health, error) {
	if object.GetDeletionTimestamp() != nil {
		return health{Status: "Progressing", Message: "Pending deletion"}, nil
	}
	kind := object.GroupVersionKind()
	if script, isAdded := added[kind.Group+"_"+kind.Kind]; isAdded {
		// Without the setting useOpenLibs, a check of argocd-cm has these libraries alone (util/lua).
		return executed(script, object, map[string]lua.LGFunction{
			lua.LoadLibName: lua.OpenPackage,
			lua.BaseLibName: lua.OpenBase,
			lua.TabLibName:  lua.OpenTable,
		})
	}
	script, err := customizations.Embedded.ReadFile(kind.Group + "/" + kind.Kind + "/health.lua")
	if errors.Is(err, fs.ErrNotExist) {
		return health{}, nil
	}
	if err != nil {
		return health{}, err
	}
	return executed(string(script), object, nil)
}

// executed runs a health check; without libraries, it has all.
func executed(script string, object *unstructured.Unstructured, libraries map[string]lua.LGFunction) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: libraries != nil})
	defer state.Close()
	for name, open := range libraries {
		parameters := lua.P{Fn: state.NewFunction(open), NRet: 0, Protect: true}
		if err := state.CallByParam(parameters, lua.LString(name)); err != nil {
			return health{}, err
		}
	}
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		return health{}, err
	}
	result, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		return health{}, fmt.Errorf("the health check returned a %s instead of a table", state.Get(-1).Type())
	}
	return health{
		Status:  lua.LVAsString(result.RawGetString("status")),
		Message: lua.LVAsString(result.RawGetString("message")),
	}, nil
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch typed := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, field := range typed {
			table.RawSetString(key, luaValue(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range typed {
			table.Append(luaValue(state, item))
		}
		return table
	case string:
		return lua.LString(typed)
	case bool:
		return lua.LBool(typed)
	case int64:
		return lua.LNumber(typed)
	case float64:
		return lua.LNumber(typed)
	}
	return lua.LNil
}
