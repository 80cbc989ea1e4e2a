package wait

// LaterAgain is for the tests.
const LaterAgain = laterAgain
