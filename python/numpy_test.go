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
