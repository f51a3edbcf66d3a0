package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/fstest"
)

// conversation gives an agent its input and returns the frames that it answers.
func conversation(t *testing.T, input []byte) (code int, answers []frame) {
	t.Helper()
	var out bytes.Buffer
	a := &Agent{In: bytes.NewReader(input), Out: &out, Version: "v1", Self: "/nosuch", Root: fstest.MapFS{}}
	code = a.Serve(t.Context())
	r := bufio.NewReader(&out)
	if line, err := r.ReadString('\n'); err != nil || line != greeting+"\n" {
		t.Fatalf("greeting %q, %v", line, err)
	}
	for {
		f, err := readFrame(r)
		if err == io.EOF {
			return code, answers
		}
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, f)
	}
}

func message(t *testing.T, kind byte, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := (&frames{w: &b}).value(kind, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAgentReportsItsHost(t *testing.T) {
	code, answers := conversation(t, nil)
	if code != 1 || len(answers) != 1 || answers[0].kind != kindHello {
		t.Fatalf("code %d, %v", code, answers)
	}
	h, err := decode[Hello](answers[0])
	if err != nil || h.Version != "v1" || h.CPUs < 1 || h.GPUs != 0 || !strings.Contains(h.NoGPUs, "no GPU") {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestAgentRefuses(t *testing.T) {
	place := func(s Spec) Spec { s.Place.Local, s.Place.World = 1, 1; return s }
	for name, c := range map[string]struct {
		input []byte
		code  int
		want  string
	}{
		"another first message": {message(t, kindSignal, 1), 1, `the launcher began with a message 'g'`},
		"nonsense":              {message(t, kindSpec, "text"), 1, "message 's'"},
		"no program":            {message(t, kindSpec, place(Spec{Program: "nosuch", Args: []string{"nosuch"}})), 127, "program nosuch"},
		"no folder":             {message(t, kindSpec, place(Spec{Program: "sh", Args: []string{"sh"}, Dir: "/nosuch"})), 127, "expected it on every host"},
		"no binding":            {message(t, kindSpec, place(Spec{Args: []string{"x"}, Bind: "sofa"})), 1, "sofa"},
		"no ranks":              {message(t, kindSpec, Spec{Args: []string{"x"}}), 1, "0 ranks on this host"},
	} {
		t.Run(name, func(t *testing.T) {
			code, answers := conversation(t, c.input)
			if len(answers) == 0 {
				t.Fatal("no answer")
			}
			last := answers[len(answers)-1]
			var x end
			if err := json.Unmarshal(last.body, &x); err != nil || last.kind != kindEnd {
				t.Fatalf("%q, %v", last, err)
			}
			if code != c.code || x.Code != c.code || !strings.Contains(x.Error, c.want) {
				t.Errorf("code %d, %+v; expected %d, %q", code, x, c.code, c.want)
			}
		})
	}
}
