// Package policy checks, as tests, rules for the project's code: which packages may
// import which, where unsafe and ptrace are permitted, how long a file may be. It has no
// code of its own and nothing imports it. To change a rule, change its table here first,
// with the reason.
package policy
