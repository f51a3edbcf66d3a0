package python

import (
	"fmt"
	"strings"
	"testing"
)

func hasTorch(p interpreter) bool { return strings.HasPrefix(p.Torch, "2.11.") }

// Public names have types and docstrings.
func TestTorchSignatures(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	text, err := run(t, p, 0, nil, "-W", "ignore", "tests/signatures.py", "mscclpp.torch", "mscclpp.torch_ops", "mscclpp.deep_ep")
	if err != nil || !strings.HasSuffix(text, " functions are right\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// Every operation of torch.distributed over the backend.
func TestTorchOperations(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	done(t, p, 3, "-W", "ignore", "tests/torch_operations.py")
}

// The operators for inference are right, traced by torch and not, and refuse other tensors than those that they serve.
func TestTorchInference(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	done(t, p, 3, "-W", "ignore", "tests/torch_inference.py")
}

// Each operation of torch 2.11's class of process groups, and each function of torch.distributed, is called once over the backend and
// over gloo; a name that neither was called nor is known for what it is fails the test.
func TestTorchAudit(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	done(t, p, 2, "-W", "ignore", "tests/torch_audit.py")
}

// DDP, FSDP2 and DTensor give what they give over gloo.
func TestTorchTraining(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	for name, ranks := range map[string]int{"2 by shm": 2, "4 by shm": 4, "2 by tcp": 2, "4 by tcp": 4} {
		t.Run(name, func(t *testing.T) {
			env := []string{"MSCCLPP_TRANSPORTS=" + strings.Fields(name)[2]}
			text, err := run(t, p, ranks, env, "tests/torch_training.py")
			if err != nil || strings.Count(text, "is done\n") != ranks {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// The rest of PyTorch's distributed software gives what it gives over gloo, bit for bit.
func TestTorchSoftware(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	for ranks, parts := range map[int]string{2: "zero join hooks averaging graphs autograd functional columns fsdp mesh checkpoint pipeline", 4: "mesh pipeline"} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			done(t, p, ranks, append([]string{"-W", "ignore", "tests/torch_software.py"}, strings.Fields(parts)...)...)
		})
	}
}

// Time limits, abort and death end the operations of a group with an exception.
func TestTorchFailures(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	for _, scene := range []string{"late", "late_work", "aborted", "version", "bad_input", "left_block", "mixed", "collected", "callbacks", "not_destroyed", "threads", "forked"} {
		t.Run(scene, func(t *testing.T) { done(t, p, 2, "tests/torch_failures.py", scene) })
	}
	t.Run("raises", func(t *testing.T) {
		text, err := run(t, p, 2, nil, "tests/torch_failures.py", "raises")
		if err == nil || !strings.Contains(text, "rank 0 is done\n") || !strings.Contains(text, "ValueError: a defect of the program") {
			t.Errorf("%v\n%s", err, text)
		}
	})
}

// Operations are performed once and in order, by whichever thread comes first.
func TestTorchWorkers(t *testing.T) {
	done(t, newest(t, "torch 2.11", hasTorch), 1, "-W", "ignore", "tests/torch_workers.py")
}

// Ctrl-C ends a call of a process group within a second.
func TestTorchKeyboardInterrupt(t *testing.T) {
	p, root := newest(t, "torch 2.11", hasTorch), tree(t)
	for _, scene := range []string{"interrupted", "interrupted_first", "interrupted_work"} {
		t.Run(scene, func(t *testing.T) { interrupt(t, root, p, "tests/torch_failures.py", scene) })
	}
}

// Dispatch and combine with the interface of DeepEP are right, in phases and traced, and refuse other tensors than those that they serve.
func TestTorchDeepEP(t *testing.T) {
	p := newest(t, "torch 2.11", hasTorch)
	done(t, p, 3, "-W", "ignore", "tests/torch_deep_ep.py")
}
