package python

import "testing"

// Arrays of NumPy, and tensors of torch where it is there.
func TestNumPy(t *testing.T) {
	p := newest(t, "NumPy", func(p interpreter) bool { return p.NumPy })
	args := []string{"tests/numpy_arrays.py"}
	if hasTorch(p) {
		args = append(args, "torch")
	}
	done(t, p, 2, args...)
}

// The operators for inference are right on arrays of NumPy, and refuse others than those that they serve.
func TestNumPyInference(t *testing.T) {
	done(t, newest(t, "NumPy", func(p interpreter) bool { return p.NumPy }), 3, "tests/inference_numpy.py")
}

// Dispatch and combine are right on arrays of NumPy, and refuse those that are too small.
func TestNumPyExperts(t *testing.T) {
	done(t, newest(t, "NumPy", func(p interpreter) bool { return p.NumPy }), 3, "tests/moe_numpy.py")
}

// They are the same over hosts, by the plugin of sockets.
func TestNumPyExpertsOverHosts(t *testing.T) {
	done(t, newest(t, "NumPy", func(p interpreter) bool { return p.NumPy }), 3, "tests/moe_numpy.py", "apart")
}
