module cgoprog

go 1.16
