package inspect

// grade is the outcome of one look.
type grade string

const (
	good grade = "ok"
	note grade = "note" // something optional is missing
	warn grade = "warn" // it works, but slower or with less
	fail grade = "FAIL" // jobs will not run
)

// finding is one line of the report.
type finding struct {
	Area   string `json:"area"`
	Grade  grade  `json:"grade"`
	Detail string `json:"detail"` // the finding, and its remedy
}
