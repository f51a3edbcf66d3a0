package python

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The programs of the tutorial, and those that people copy, run.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile("../docs/python.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 5 {
		t.Fatalf("%d programs: expected more", len(blocks))
	}
	files := []string{"../examples/python/proxy.py", "../examples/python/ddp.py", "../examples/python/numpy_sum.py", "../examples/python/kernel.py", "../examples/python/llama_decode.py", "../examples/python/moe_layer.py"}
	for i, block := range blocks {
		file := filepath.Join(t.TempDir(), "program"+string(rune('a'+i))+".py")
		if err := os.WriteFile(file, []byte(block[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".py"), func(t *testing.T) {
			program, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			what, has := "nothing else", anyPython
			switch {
			case strings.Contains(string(program), "import torch"):
				what, has = "torch 2.11", hasTorch
			case strings.Contains(string(program), "import numpy"):
				what, has = "NumPy", func(p interpreter) bool { return p.NumPy }
			}
			if text, err := run(t, newest(t, what, has), 2, nil, file); err != nil {
				t.Errorf("%v\n%s\n%s", err, program, text)
			}
		})
	}
}
