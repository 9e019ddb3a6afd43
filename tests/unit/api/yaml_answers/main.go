// Prints what kubectl reads from YAML. Each line of the input is a JSON object with a text; each line of the output has the same text,
// with the documents that kubectl visits as JSON, and the error that ends them.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

type answer struct {
	Text      string            `json:"text"`
	Documents []json.RawMessage `json:"documents"`
	Error     string            `json:"error,omitempty"`
}

// read is the loop of kubectl's StreamVisitor.
func read(text string) answer {
	result := answer{Text: text, Documents: []json.RawMessage{}}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		ext := runtime.RawExtension{}
		if err := decoder.Decode(&ext); err != nil {
			if err != io.EOF {
				result.Error = err.Error()
			}
			return result
		}
		ext.Raw = bytes.TrimSpace(ext.Raw)
		if len(ext.Raw) > 0 && !bytes.Equal(ext.Raw, []byte("null")) {
			result.Documents = append(result.Documents, json.RawMessage(bytes.Clone(ext.Raw)))
		}
	}
}

func main() {
	decoder := json.NewDecoder(os.Stdin)
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for {
		var question answer
		if err := decoder.Decode(&question); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		if err := encoder.Encode(read(question.Text)); err != nil {
			panic(err)
		}
	}
}
